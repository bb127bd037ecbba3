"""Images from prompts: a diffusion transformer of diffusers', trained on latents of one's own images.

Peebles & Xie, "Scalable Diffusion Models with Transformers" (2023); conditioned on text as Chen et al., "PixArt-alpha"
(2024) do. Needs the extra `dit`.
"""
