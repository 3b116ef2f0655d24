"""The checks behind the manifest, a module for each section."""
