namespace Quantra.Client.Hosting;

/// <summary>A message for the user.</summary>
/// <param name="Text">One line.</param>
/// <param name="IsWarning">Whether it is a warning about the data. Otherwise it reports an event, for example that memory ran out.</param>
public sealed record TrainingNotice(string Text, bool IsWarning) : TrainingProgress
{
    /// <inheritdoc/>
    public override string ToString() => Text;
}
