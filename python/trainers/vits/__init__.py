"""Text to speech: transformers' `VitsModel`, trained on your recordings and on corrections of its output.

Kim, Kong & Son, "Conditional Variational Autoencoder with Adversarial Learning for End-to-End Text-to-Speech" (2021).
Needs the extra `tts`; see `docs/speech.md`.
"""
