namespace Quantra.Client.Hosting;

/// <summary>A training was stopped before its end; the message says what it left.</summary>
public sealed class TrainingCanceledException : OperationCanceledException
{
    /// <summary>Creates an exception.</summary>
    /// <param name="message">What happened, and what is left.</param>
    /// <param name="checkpoint">The folder of the last checkpoint; null = none.</param>
    /// <param name="token">That was cancelled.</param>
    public TrainingCanceledException(string message, string? checkpoint, CancellationToken token)
        : base(message, token) => Checkpoint = checkpoint;

    /// <summary>
    /// The folder of its last checkpoint, from which the same training goes on if <see cref="StockTraining.Resume"/> is set; null = none
    /// was written.
    /// </summary>
    public string? Checkpoint { get; }
}
