"""Typed generators: a prompt, its contexts and its tools, made once and run as often as wanted."""
