namespace Quantra.Client.Hosting;

/// <summary>The end of an epoch.</summary>
/// <param name="Epoch">Number of the epoch, from 0.</param>
/// <param name="Epochs">Largest number of epochs. Training stops early when the validation score no longer improves.</param>
/// <param name="Loss">Mean over the targets of the epoch; NaN if no step was taken.</param>
/// <param name="Validation">Score on the validation days, lower is better; NaN = none.</param>
/// <param name="Seconds">Duration, validation included.</param>
public sealed record TrainingEpoch(int Epoch, int Epochs, double Loss, double Validation, double Seconds) : TrainingProgress
{
    /// <inheritdoc/>
    public override string ToString() =>
        FormattableString.Invariant($"epoch {Epoch + 1}/{Epochs}: loss {Loss:g6}, validation {Validation:g6}, {Seconds:f1} s");
}
