namespace Quantra.Client.Hosting;

/// <summary>A checkpoint, from which a training can go on.</summary>
/// <param name="Folder">Where it is, or would have been.</param>
/// <param name="Problem">Why it could not be written, while the training goes on; null = it was.</param>
public sealed record TrainingCheckpoint(string Folder, string? Problem) : TrainingProgress
{
    /// <inheritdoc/>
    public override string ToString() => Problem is null ? $"checkpoint {Folder}" : $"checkpoint {Folder} was not written: {Problem}";
}
