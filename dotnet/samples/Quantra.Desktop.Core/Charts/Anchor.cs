namespace Quantra.Desktop.Charts;

/// <summary>Part of a text at its position.</summary>
public enum Anchor
{
    Start,

    Middle,

    End,
}
