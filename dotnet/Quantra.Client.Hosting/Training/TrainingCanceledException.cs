namespace Quantra.Client.Hosting;

/// <summary>Thrown when a training is stopped before its end. The message names the checkpoint.</summary>
public sealed class TrainingCanceledException : OperationCanceledException
{
    /// <summary>Creates an exception.</summary>
    /// <param name="message">What happened, and what remains.</param>
    /// <param name="checkpoint">Folder of the last checkpoint; null = none.</param>
    /// <param name="token">The cancelled token.</param>
    public TrainingCanceledException(string message, string? checkpoint, CancellationToken token)
        : base(message, token) => Checkpoint = checkpoint;

    /// <summary>
    /// Folder of the last checkpoint, from which the training continues if <see cref="StockTraining.Resume"/> is set; null = none was written.
    /// </summary>
    public string? Checkpoint { get; }
}
