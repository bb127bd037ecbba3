namespace Quantra.Client.Hosting;

/// <summary>Something that a person should know.</summary>
/// <param name="Text">In one line.</param>
/// <param name="IsDoubt">Whether it makes the bars or files doubtful; else it happened once, such as memory that ran out.</param>
public sealed record TrainingNotice(string Text, bool IsDoubt) : TrainingProgress
{
    /// <inheritdoc/>
    public override string ToString() => Text;
}
