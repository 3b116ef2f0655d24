"""What the wires of OpenAI share: error bodies, embeddings, the model list and how JSON is written.

Both dialects stand on it, and it knows neither.
"""
