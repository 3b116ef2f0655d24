"""Has `client.py` do one scenario: `launch.py SOCKET URL`; imports nothing that takes time."""

import json
import os
import socket
import sys

if __name__ == "__main__":
    told = {
        "url": sys.argv[2],
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "version": os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        "context": os.environ.get("MCP_CONFORMANCE_CONTEXT", ""),
    }
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(sys.argv[1])
        client.sendall(json.dumps(told).encode() + b"\n")
        with client.makefile() as answer:
            sys.exit(answer.read() or 0)
