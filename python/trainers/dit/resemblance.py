"""How alike a CLIP model finds images and prompts: Radford et al. (2021); weights from a local folder alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self, final

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional
from transformers import AutoTokenizer, CLIPModel

from trainers.dit.errors import RewardError

MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
DEVIATION: Final = (0.26862954, 0.26130258, 0.27577711)
"""Of the pixels that CLIP was trained on, by colour."""

TOGETHER: Final = 32
"""Images that are looked at at once; a model of usual size needs a hundred megabytes for them."""


@final
class ClipSimilarity:
    """The cosine between a CLIP model's embeddings of an image and of its prompt, -1 to 1.

    Args:
        model: of both.
        tokenizer: of the prompts.
    """

    def __init__(self, model: CLIPModel, tokenizer: Any) -> None:
        self._model: Any = model.requires_grad_(False).eval()
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model of a folder; nothing is downloaded.

        Raises:
            RewardError: it holds none, or not all of its weights.
        """
        kind: Any = CLIPModel
        try:
            model, told = kind.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            raise RewardError(f"{folder} cannot be read as a CLIP model with its tokenizer: {error}") from error
        missing = sorted(told["missing_keys"])
        if missing:
            raise RewardError(f"{folder} lacks {len(missing)} weights of its CLIP model, {missing[0]} the first")
        return cls(model, tokenizer)

    def __call__(self, images: Tensor, prompts: Sequence[str], targets: Tensor) -> Tensor:  # noqa: ARG002
        """float32 [N]."""
        looked = [self._model.vision_model(pixel_values=self._prepared(some)) for some in images.cpu().split(TOGETHER)]
        seen = torch.cat([one.pooler_output for one in looked])
        tokens = self._tokenizer(list(prompts), padding=True, return_tensors="pt")
        read = self._model.text_model(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).pooler_output
        return functional.cosine_similarity(self._model.visual_projection(seen), self._model.text_projection(read))

    def _prepared(self, images: Tensor) -> Tensor:
        """Images, float [N, channels, height, width], 0 to 1, as it reads them: [N, 3, side, side]."""
        side: int = self._model.config.vision_config.image_size
        coloured = images.expand(-1, 3, -1, -1)
        sized = functional.interpolate(coloured, (side, side), mode="bicubic", antialias=True).clamp(0, 1)
        mean, deviation = torch.tensor(MEAN)[:, None, None], torch.tensor(DEVIATION)[:, None, None]
        return (sized - mean) / deviation
