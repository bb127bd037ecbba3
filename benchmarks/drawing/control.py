"""A control whose training noise and sampler do not match.

It mixes latents as sqrt(1 - t / 1000) x + sqrt(t / 1000) n and learns n. That is a legal schedule, so the loss shows
no problem. The images depend on the sampler: Euler's method of flow matching, as in GLM-Image, DDIM with the usual
linear betas, or DDIM with the schedule of the formula. Network, first weights, images, steps, optimizer and average
equal ours.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from diffusers.models.transformers.pixart_transformer_2d import PixArtTransformer2DModel
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

from benchmarks.drawing.digits import Workplace
from trainers.dit.batches import LatentCache
from trainers.dit.models import ImageModel
from trainers.dit.networks import PixArtNetwork
from trainers.dit.objective import DiffusionObjective, DiffusionProcess, create_objective
from trainers.dit.recipe import ImageRecipe
from trainers.dit.training import fit
from trainers.loop import Checkpoints, seed_everything

TIMES: Final = 1000


def noising() -> DiffusionProcess:
    """The control's noise schedule, with noise as the target."""
    return DiffusionProcess(1 - torch.arange(TIMES) / TIMES, "epsilon")


def same_schedule() -> Any:
    """DDIM with the schedule of the formula."""
    share = noising().signal_share
    betas = 1 - share / torch.cat([torch.ones(1), share[:-1]])
    return DDIMScheduler(trained_betas=betas.numpy(), clip_sample=False, timestep_spacing="trailing")


def samplers() -> Mapping[str, DiffusionObjective]:
    """The formula with each scheduler, by label."""
    schedulers = {
        "drawn by FlowMatchEuler": FlowMatchEulerDiscreteScheduler(TIMES),
        "drawn by DDIM, betas on a line": create_objective("epsilon").scheduler(),
        "drawn by DDIM of the same schedule": same_schedule(),
    }
    return MappingProxyType(
        {name: DiffusionObjective("the control's", noising(), scheduler) for name, scheduler in schedulers.items()}
    )


def trained(work: Workplace, name: str, *, steps: int, seed: int) -> ImageModel:
    """A model trained on the formula's noise; callers set its objective to one of `samplers`."""
    place = work.folder / name
    model = ImageModel.load(work.base(seed))
    model.objective = next(iter(samplers().values()))
    if not place.is_dir():
        recipe = ImageRecipe(steps=steps, seed=seed)
        seed_everything(seed)
        checkpoints = Checkpoints(place.with_name(f"{name}.run"), keep=1, settings={"steps": steps, "seed": seed})
        fit(model, LatentCache.open(work.cache), recipe, checkpoints, iter)
        transformer: Any = model.network.module.cpu()
        transformer.save_pretrained(place)
    loaded: Any = PixArtTransformer2DModel.from_pretrained(place, local_files_only=True, low_cpu_mem_usage=False)
    return ImageModel(PixArtNetwork(loaded.eval(), model.image_format), model.latents, model.prompts, model.objective)
