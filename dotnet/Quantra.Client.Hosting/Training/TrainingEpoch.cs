namespace Quantra.Client.Hosting;

/// <summary>The end of an epoch.</summary>
/// <param name="Epoch">From 0.</param>
/// <param name="Epochs">How many there are at most: a training ends when no epoch is better for a while.</param>
/// <param name="Loss">Mean over the epoch's targets; NaN if no step was taken.</param>
/// <param name="Validation">The score on days that it does not learn from, lower is better; NaN = none.</param>
/// <param name="Seconds">That it took, validation included.</param>
public sealed record TrainingEpoch(int Epoch, int Epochs, double Loss, double Validation, double Seconds) : TrainingProgress
{
    /// <inheritdoc/>
    public override string ToString() =>
        FormattableString.Invariant($"epoch {Epoch + 1}/{Epochs}: loss {Loss:g6}, validation {Validation:g6}, {Seconds:f1} s");
}
