namespace Quantra.Client.Hosting;

/// <summary>Something else begins.</summary>
/// <param name="Text">Such as "computing features".</param>
public sealed record TrainingStage(string Text) : TrainingProgress
{
    /// <inheritdoc/>
    public override string ToString() => Text;
}
