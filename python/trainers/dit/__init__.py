"""Images from prompts: a diffusion transformer of diffusers, trained on latents of your images.

Peebles & Xie, "Scalable Diffusion Models with Transformers" (2023), with text conditioning as in Chen et al.,
"PixArt-alpha" (2024). Needs the extra `dit`.
"""
