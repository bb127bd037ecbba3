namespace Quantra.Client.Hosting;

/// <summary>An optimizer step over one window of batches.</summary>
/// <param name="Epoch">Number of the epoch, from 0.</param>
/// <param name="Epochs">Largest number of epochs. Training stops early when the validation score no longer improves.</param>
/// <param name="Window">Number of the window within the epoch, from 0.</param>
/// <param name="Windows">Windows per epoch; null = unknown.</param>
/// <param name="Loss">Mean over the targets of the window, before the step; NaN if not finite.</param>
/// <param name="GradientNorm">Norm before clipping; NaN if not finite.</param>
/// <param name="LearningRate">Learning rate of the step.</param>
/// <param name="IsSkipped">Whether the step was skipped because loss or gradient was not finite.</param>
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
    /// <summary>Completed share of all epochs, for a progress bar.</summary>
    /// <value>Above 0, at most 1; null = unknown.</value>
    public double? Share => Windows is { } windows ? (Epoch + ((Window + 1.0) / windows)) / Epochs : null;

    /// <inheritdoc/>
    public override string ToString()
    {
        var of = Windows is { } windows ? FormattableString.Invariant($"/{windows}") : "";
        return FormattableString.Invariant($"epoch {Epoch + 1}/{Epochs}, window {Window + 1}{of}: loss {Loss:g6}");
    }
}
