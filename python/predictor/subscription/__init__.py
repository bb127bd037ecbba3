"""Subscriptions: a panel's recent history that grows by pushed bars, one day after another.

A push returns a new subscription or an error. The package knows no model, thread or protocol: the caller forecasts the
subscription's instance, and keeps the new subscription if the forecast succeeds.
"""

from predictor.subscription.subscription import AcceptedPush, Push, Subscription, make_session_error, require_panel

__all__ = ["AcceptedPush", "Push", "Subscription", "make_session_error", "require_panel"]
