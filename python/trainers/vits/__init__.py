"""Text to speech: transformers' `VitsModel`, trained on one's own recordings and on corrections of what it says.

Kim, Kong & Son, "Conditional Variational Autoencoder with Adversarial Learning for End-to-End Text-to-Speech" (2021).
Needs the extra `tts`. `docs/speech.md` goes from a folder of recordings to a spoken sentence.
"""
