"""The host's side of sampling: who may ask, what for, who approves it, and the answer.

`callback` is the whole of it and needs the package `mcp`; the policy, the queue and the terminal do
without, so that a gateway can have them.
"""
