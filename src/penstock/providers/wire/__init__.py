"""What the dialects share: frames, errors, stop reasons, counts."""
