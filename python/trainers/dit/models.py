"""Image models in the folder layout of diffusers' pipelines.

FOLDER/model_index.json    pipeline, and class of each part
FOLDER/transformer/        trained network
FOLDER/vae/  text_encoder/  tokenizer/    frozen parts
FOLDER/scheduler/          sampler, which determines the objective; an untrained model may have none
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, final

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from diffusers.models.transformers.transformer_glm_image import GlmImageTransformer2DModel
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from safetensors import SafetensorError
from torch import nn
from transformers import AutoTokenizer, CLIPTextModel, T5EncoderModel

from predictor.draft_folder import publish_folder, remove_drafts
from trainers.dit.encoders import (
    GlyphCoder,
    LatentCoder,
    PixArtPromptEncoder,
    PromptEncoder,
    find_scale,
    read_standardised_units,
    scaled,
)
from trainers.dit.errors import ModelError
from trainers.dit.images import ImageFormat
from trainers.dit.networks import GlmNetwork, ImageNetwork, PixArtNetwork, PromptCondition
from trainers.dit.objective import DiffusionObjective, build_glm_objective, create_objective, find_objective
from trainers.dit.recipe import ObjectiveName
from trainers.media.run_directory import check_free

INDEX: Final = "model_index.json"

PARTS: Final = ("transformer", "vae", "text_encoder")
"""Networks of a folder."""


PIPELINES: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = MappingProxyType(
    {
        "PixArtAlphaPipeline": {
            "transformer": {"PixArtTransformer2DModel": PixArtTransformer2DModel},
            "vae": {"AutoencoderKL": AutoencoderKL},
            "text_encoder": {"CLIPTextModel": CLIPTextModel, "T5EncoderModel": T5EncoderModel},
        },
        "GlmImagePipeline": {
            "transformer": {"GlmImageTransformer2DModel": GlmImageTransformer2DModel},
            "vae": {"AutoencoderKL": AutoencoderKL},
            "text_encoder": {"T5EncoderModel": T5EncoderModel},
        },
    }
)
"""Supported pipelines, with the supported classes of each network."""


CARRIED: Final = ("processor", "vision_language_encoder")
"""Parts of GLM-Image that plan images. They are copied when a model is saved, but neither loaded nor trained."""


SCHEDULERS: Final[Mapping[str, Any]] = MappingProxyType(
    {kind.__name__: kind for kind in (DPMSolverMultistepScheduler, DDIMScheduler, FlowMatchEulerDiscreteScheduler)}
)
"""Schedulers that can be loaded; `find_objective` finds the objective of one."""


@final
class ImageModel:
    """A model that draws images of prompts.

    Args:
        network: Transformer.
        latents: VAE.
        prompts: Text encoder and tokenizer.
        objective: Objective of the transformer; None for an untrained one.
        carried: Folders of other parts, by name, which `save` copies.

    Attributes:
        network: As given.
        latents: As given.
        prompts: As given.
        objective: As given.

    Raises:
        ModelError: The parts do not fit together.
    """

    def __init__(
        self,
        network: ImageNetwork,
        latents: LatentCoder,
        prompts: PromptEncoder,
        objective: DiffusionObjective | None = None,
        carried: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        _check_fit(network, latents, prompts)
        self._carried = dict(carried)
        self.network = network
        self.latents = latents
        self.prompts = prompts
        self.objective = objective

    @classmethod
    def of(
        cls,
        transformer: PixArtTransformer2DModel,
        vae: AutoencoderKL,
        encoder: nn.Module,
        tokenizer: Any,
        objective: DiffusionObjective | None = None,
    ) -> Self:
        """Create a model from the parts of PixArt's pipeline.

        Raises:
            ModelError: The parts do not fit together.
        """
        config: Any = transformer.config
        coder = LatentCoder(vae, config.sample_size, scaled(vae))
        return cls(
            PixArtNetwork(transformer, coder.image_format), coder, PixArtPromptEncoder(encoder, tokenizer), objective
        )

    @classmethod
    def of_glm(
        cls,
        transformer: GlmImageTransformer2DModel,
        vae: AutoencoderKL,
        encoder: nn.Module,
        tokenizer: Any,
        scheduler: Any,
        carried: Mapping[str, Path] = MappingProxyType({}),
    ) -> Self:
        """Create a model from the parts of GLM-Image's pipeline; the VAE determines the size of the images.

        Raises:
            ModelError: The parts do not fit together.
            SchedulerError: The scheduler is not that of GLM-Image.
        """
        config: Any = vae.config
        side = config.sample_size // find_scale(vae)
        coder = LatentCoder(vae, side, read_standardised_units(vae))
        network = GlmNetwork(transformer, coder.image_format, side)
        return cls(
            network, coder, GlyphCoder(encoder, tokenizer), build_glm_objective(scheduler, network.prior_count), carried
        )

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the model of a folder; nothing is downloaded.

        Raises:
            ModelError: The folder holds no model, a part has an unknown class or lacks weights, or the parts do not
                fit together.
            SchedulerError: No objective matches the scheduler.
        """
        index = _read_index(folder)
        transformer, vae, encoder = (_load_network(folder, name, index) for name in PARTS)
        tokenizer, scheduler = _load_tokenizer(folder), _load_scheduler(folder, index)
        if index["_class_name"] == "GlmImagePipeline":
            carried = {name: folder / name for name in CARRIED if (folder / name).is_dir()}
            return cls.of_glm(transformer, vae, encoder, tokenizer, scheduler, carried)
        return cls.of(transformer, vae, encoder, tokenizer, None if scheduler is None else find_objective(scheduler))

    @property
    def image_format(self) -> ImageFormat:
        """Format of the drawn images."""
        return self.latents.image_format

    def to(self, device: torch.device) -> Self:
        """Move the networks to a device."""
        nn.ModuleList([self.network.module, self.latents.module, self.prompts.module]).to(device)
        return self

    def unconditional(self) -> PromptCondition:
        """Condition of the empty prompt, with one row."""
        condition = self.prompts.embed(self.prompts.tokens([""]))
        prior_tokens = torch.zeros(1, self.network.prior_count, dtype=torch.long, device=condition.mask.device)
        return condition._replace(prior_tokens=prior_tokens, is_empty_prompt=torch.ones_like(condition.is_empty_prompt))

    def learning(self, name: ObjectiveName | None) -> Self:
        """This model with an objective: its own if it has one, else the named one or flow matching.

        Raises:
            SchedulerError: The scheduler does not match the named objective.
        """
        objective = create_objective(name or "flow")
        if self.objective is None:
            return type(self)(self.network, self.latents, self.prompts, objective, self._carried)
        if name is not None:
            objective.check(self.objective.scheduler())
        return self

    def save(self, folder: Path, notes: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> None:
        """Write a folder that `from_pretrained` of the pipeline reads.

        The folder appears atomically, after a test load.

        Args:
            folder: Folder to create.
            notes: Contents of JSON files to add, by name.

        Raises:
            ModelError: The folder exists or cannot be written.
        """
        check_free(folder, ModelError)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            remove_drafts(folder.parent, folder.name)
            with publish_folder(folder) as draft:
                self._write(draft)
                for name, note in notes.items():
                    (draft / name).write_text(json.dumps(note, indent=1) + "\n", "utf-8")
                type(self).load(draft)
        except (OSError, SafetensorError) as error:  # the latter if the disk is full
            reason = error.strerror if isinstance(error, OSError) else error
            raise ModelError(f"{folder} cannot be written ({reason}); choose another folder, or free space") from error

    def _write(self, folder: Path) -> None:
        modules: dict[str, Any] = {
            "transformer": self.network.module,
            "vae": self.latents.module,
            "text_encoder": self.prompts.module,
            "tokenizer": self.prompts.tokenizer,
        }
        if self.objective is not None:
            modules["scheduler"] = self.objective.scheduler()
        for name, module in modules.items():
            module.save_pretrained(folder / name)
        classes = {name: type(module) for name, module in modules.items()}
        parts = {name: [kind.__module__.partition(".")[0], kind.__name__] for name, kind in classes.items()}
        # Parts that GLM-Image's pipeline lacks are null in the index.
        carried: dict[str, Any] = {name: [None, None] for name in CARRIED} if self.network.prior_count else {}
        for name, path in self._carried.items():
            shutil.copytree(path, folder / name)
            carried[name] = _read_index(path.parent)[name]
        index = {"_class_name": self.network.pipeline, "scheduler": [None, None], **parts, **carried}
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", "utf-8")


def _check_fit(network: ImageNetwork, latents: LatentCoder, prompts: PromptEncoder) -> None:
    config: Any = latents.module.config
    if config.latent_channels != network.channels:
        raise ModelError(
            f"the VAE has latents of {config.latent_channels} channels, but the transformer reads {network.channels}; "
            "use the VAE that belongs to it"
        )
    if config.in_channels != config.out_channels:
        raise ModelError(
            f"the VAE reads {config.in_channels} channels and draws {config.out_channels}; make them equal"
        )
    if prompts.width != network.caption_width:
        raise ModelError(
            f"the text encoder has embeddings of width {prompts.width}, but the transformer reads "
            f"{network.caption_width}; use the text encoder that belongs to it"
        )


def _read_index(folder: Path) -> Mapping[str, Any]:
    """Read model_index.json."""
    path = folder / INDEX
    if not path.is_file():
        raise ModelError(f"{folder} is not a model: {INDEX} is missing; give a folder in diffusers' layout")
    try:
        index = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is damaged ({error}); restore it") from error
    required_keys = ("_class_name", *PARTS, "tokenizer")
    missing = [name for name in required_keys if not isinstance(index, dict) or name not in index]
    if missing:
        raise ModelError(f"{path} lacks {', '.join(missing)}; restore it")
    if index["_class_name"] not in PIPELINES:
        raise ModelError(f"{path} is of a {index['_class_name']}, expected {' or '.join(PIPELINES)}")
    return index


def _find_class(folder: Path, name: str, index: Mapping[str, Any], classes: Mapping[str, Any]) -> Any:
    """Class of a part according to the index."""
    class_name = index[name][-1] if isinstance(index[name], list) and index[name] else index[name]
    if class_name not in classes:
        raise ModelError(f"{folder / INDEX} has {class_name} as {name}, expected {' or '.join(classes)}")
    return classes[class_name]


def _load_network(folder: Path, name: str, index: Mapping[str, Any]) -> Any:
    """Load a network, in evaluation mode."""
    kind, path = _find_class(folder, name, index, PIPELINES[index["_class_name"]][name]), folder / name
    if name == "text_encoder":
        settings: dict[str, Any] = {"dtype": torch.float32}
    else:
        settings = {"torch_dtype": torch.float32, "low_cpu_mem_usage": False}  # low usage needs accelerate
    try:
        model, info = kind.from_pretrained(
            path, local_files_only=True, use_safetensors=True, output_loading_info=True, **settings
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        raise ModelError(f"{path} cannot be read as a {kind.__name__}: {error}") from error
    wrong = {part: sorted(info[part]) for part in ("missing_keys", "unexpected_keys") if info[part]}
    if wrong:
        raise ModelError(f"{path} is damaged: its weights do not match its configuration: {wrong}; copy it again")
    return model.eval()


def _load_tokenizer(folder: Path) -> Any:
    path = folder / "tokenizer"
    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be read as a tokenizer: {error}") from error


def _load_scheduler(folder: Path, index: Mapping[str, Any]) -> Any:
    """Load the scheduler, if the folder has one."""
    if index.get("scheduler") in (None, [None, None]):
        return None
    kind, path = _find_class(folder, "scheduler", index, SCHEDULERS), folder / "scheduler"
    try:
        return kind.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"{path} cannot be read as a {kind.__name__}: {error}") from error


TRAINING: Final = "training.json"
"""File with settings and results of the training."""


TUNING: Final = "tuning.json"
"""File with settings and results of the tuning."""


WORDS: Final = "words"
"""Key in both files: words of all training prompts; null if those of an earlier training are unknown."""


Notes = Mapping[str, Mapping[str, Any]]
"""Contents of these files, by file name."""


def read_notes(model: Path) -> Notes:
    """Read the training and tuning files of a model, if it has them.

    Raises:
        ModelError: A file is damaged.
    """
    return {name: _read(model / name) for name in (TRAINING, TUNING) if (model / name).is_file()}


def read_trained_words(notes: Notes) -> frozenset[str] | None:
    """Words that a model was trained on; None if its notes do not list them."""
    words = next(iter(notes.values()), {}).get(WORDS)
    return None if words is None else frozenset(map(str, words))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        notes = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}); restore it, or remove it") from error
    if not isinstance(notes, dict) or not isinstance(notes.get(WORDS, []), list | None):
        raise ModelError(f"{path} is damaged (missing or invalid fields); restore it, or remove it")
    return notes
