"""A panel's history to which bars are pushed, a day after the other: what is kept, what is taken, what is refused.

    subscription.py   Subscription: the bars that forecasts depend on; each push gives another one, or an error
    day.py            Day: the last day's bars as far as they have come
    beside.py         the covariates of a day, beside its bars

No model, no thread and no wire: whoever holds a subscription asks a model about its instance, and goes on with the
subscription after the push if the answer allows it.
"""

from predictor.subscription.subscription import AcceptedPush, Push, Subscription, panel_of

__all__ = ["AcceptedPush", "Push", "Subscription", "panel_of"]
