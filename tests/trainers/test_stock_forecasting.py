"""Network forecasts of many windows, joined in order."""

import torch

from trainers.stock.network_forecasts import join_parts


def test_parts_stand_one_after_the_other() -> None:
    parts = [torch.full((rows, 2), float(rows)) for rows in (3, 1, 2)]
    assert torch.equal(join_parts(iter(parts), 6), torch.cat(parts))


def test_parts_keep_their_type() -> None:
    assert join_parts([torch.ones(2, dtype=torch.float64)], 2).dtype == torch.float64
