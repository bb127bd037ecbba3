namespace Quantra.Client.Hosting;

/// <summary>A model that was trained.</summary>
/// <param name="Artifact">Its folder.</param>
/// <param name="CardJson">Its card: data, splits, recipe, scores; null if it was there already.</param>
/// <param name="Skill">What its skill on held-out days is, in a sentence; null = not known.</param>
/// <param name="WasThere">Whether it was finished before, and Resume found it so.</param>
public sealed record TrainingResult(string Artifact, string? CardJson, string? Skill, bool WasThere)
{
    /// <summary>One line.</summary>
    /// <returns>The folder, and the skill if it is known.</returns>
    public override string ToString() => Skill is null ? Artifact : $"{Artifact}: {Skill}";
}
