"""Where Bedrock is: the region, the hosts, and the path of a model."""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path
from urllib.parse import quote, urlsplit

from penstock.contract.errors import ConfigurationError, ModelNotFound
from penstock.providers.wire.dialect import Options

DEFAULT_REGION = "us-east-1"
_REGION = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")
_HOST_REGION = re.compile(r"(?:^|\.)bedrock(?:-runtime)?(?:-fips)?\.([a-z0-9-]+)\.")


def address(options: Options) -> str:
    """The base address of the runtime in the configured region."""
    return f"https://bedrock-runtime.{region(options)}.amazonaws.com"


def region(options: Options) -> str:
    """The option, AWS_REGION, AWS_DEFAULT_REGION, the profile's region, else us-east-1."""
    found = (
        options.get("region")
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or _profile_region(profile(options))
        or DEFAULT_REGION
    )
    if not _REGION.fullmatch(found):
        raise ConfigurationError(f"{found!r} is not the name of an AWS region, such as eu-west-1")
    return found


def profile(options: Options) -> str | None:
    """The name of the profile that is asked for; None for AWS's own default."""
    return options.get("profile") or os.environ.get("AWS_PROFILE") or None


def signing_region(url: str, options: Options) -> str:
    """The region that a signature for this address must name: the host's own, where it tells."""
    told = _HOST_REGION.search(urlsplit(url).hostname or "")
    return told[1] if told else region(options)


def is_amazon(url: str) -> bool:
    """Whether the address is one of Amazon's own, so that a key from the environment may go."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "https" and host.endswith((".amazonaws.com", ".api.aws"))


def control_plane(url: str) -> str | None:
    """The address of the control plane that belongs to a runtime; None for any other server."""
    parts = urlsplit(url)
    host = parts.netloc.replace("bedrock-runtime", "bedrock", 1)
    return f"{parts.scheme}://{host}" if is_amazon(url) and host != parts.netloc else None


def model_path(model: str, action: str) -> str:
    """The path of an action on a model; an ARN's slashes are part of the name."""
    if model in (".", ".."):
        # A path would lose it, encoded or not.
        raise ModelNotFound(f"there is no model {model!r}")
    return f"/model/{quote(model, safe='')}/{action}"


def _profile_region(name: str | None) -> str | None:
    """Read from the file itself, for an address needs neither botocore nor credentials."""
    path = Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()
    file = configparser.RawConfigParser(strict=False)
    try:
        file.read(path, encoding="utf-8")
        section = f"profile {name}" if name and name != "default" else "default"
        return file.get(section, "region", fallback=None) or None
    except (configparser.Error, UnicodeDecodeError, OSError):
        # A broken file is botocore's to report, when credentials are wanted from it.
        return None
