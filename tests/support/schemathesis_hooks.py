"""What the formats of the OpenAPI documents mean, for schemathesis; named by SCHEMATHESIS_HOOKS."""

import schemathesis
from hypothesis import strategies as st

MEANINGS = {
    "timezone": ["UTC", "Europe/Berlin", "Australia/Lord_Howe"],
    "model": ["default", "assistant", "fake/echo", "nothing-of-the-kind"],
    "target": ["fake/echo", "fake/some/other", "nobody/here"],
}
for name, values in MEANINGS.items():
    schemathesis.openapi.format(name, st.sampled_from(values))
