"""What the wires of OpenAI share: errors, embeddings, transcription, models, and writing.

Both dialects stand on it, and it knows neither.
"""
