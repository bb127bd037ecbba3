namespace Quantra.Client.Hosting;

/// <summary>A checkpoint from which the training can be resumed.</summary>
/// <param name="Folder">Folder of the checkpoint.</param>
/// <param name="Problem">Why it could not be written, in which case training continues; null = it was written.</param>
public sealed record TrainingCheckpoint(string Folder, string? Problem) : TrainingProgress
{
    /// <inheritdoc/>
    public override string ToString() => Problem is null ? $"checkpoint {Folder}" : $"checkpoint {Folder} was not written: {Problem}";
}
