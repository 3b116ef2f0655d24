"""OpenAI's Chat Completions, embeddings and models."""
