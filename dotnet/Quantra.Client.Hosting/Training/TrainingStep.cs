namespace Quantra.Client.Hosting;

/// <summary>A step of an optimizer, over one window of batches.</summary>
/// <param name="Epoch">From 0.</param>
/// <param name="Epochs">How many there are at most: a training ends when no epoch is better for a while.</param>
/// <param name="Window">Within the epoch, from 0.</param>
/// <param name="Windows">In each epoch; null = not known.</param>
/// <param name="Loss">Mean over the window's targets, before the step; NaN if it was not finite.</param>
/// <param name="GradientNorm">Before clipping; NaN if it was not finite.</param>
/// <param name="LearningRate">In this step.</param>
/// <param name="IsSkipped">Whether nothing was learnt, because loss or gradient was not finite.</param>
public sealed record TrainingStep(
    int Epoch,
    int Epochs,
    int Window,
    int? Windows,
    double Loss,
    double GradientNorm,
    double LearningRate,
    bool IsSkipped) : TrainingProgress
{
    /// <summary>How much of all epochs is done, for a bar.</summary>
    /// <value>Above 0, at most 1; null = not known.</value>
    public double? Share => Windows is { } windows ? (Epoch + ((Window + 1.0) / windows)) / Epochs : null;

    /// <inheritdoc/>
    public override string ToString()
    {
        var of = Windows is { } windows ? FormattableString.Invariant($"/{windows}") : "";
        return FormattableString.Invariant($"epoch {Epoch + 1}/{Epochs}, window {Window + 1}{of}: loss {Loss:g6}");
    }
}
