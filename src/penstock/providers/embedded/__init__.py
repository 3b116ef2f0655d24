"""A model inside this process: llama.cpp, a small set of weights, and a table of word vectors.

`provider` is the door. A request goes `encode` → `runtime` (one thread for each model, in order of
arrival) → `decode`; `weights` finds the model file, `embeddings` needs no model at all, and
`install` brings the packages that all of it stands on, none of which is imported before its use.
"""
