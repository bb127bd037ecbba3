namespace Quantra.Client.Hosting;

/// <summary>The start of a stage.</summary>
/// <param name="Text">For example "computing features".</param>
public sealed record TrainingStage(string Text) : TrainingProgress
{
    /// <inheritdoc/>
    public override string ToString() => Text;
}
