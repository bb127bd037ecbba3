namespace Quantra.Client.Hosting;

/// <summary>A trained model.</summary>
/// <param name="Artifact">Folder of the model.</param>
/// <param name="CardJson">Model card: data, splits, recipe and scores; null if the training was already finished.</param>
/// <param name="Skill">Skill on held-out days as a sentence; null = unknown.</param>
/// <param name="WasThere">Whether the training was already finished when it was resumed.</param>
public sealed record TrainingResult(string Artifact, string? CardJson, string? Skill, bool WasThere)
{
    /// <summary>Formats the result as one line.</summary>
    /// <returns>The folder, and the skill if known.</returns>
    public override string ToString() => Skill is null ? Artifact : $"{Artifact}: {Skill}";
}
