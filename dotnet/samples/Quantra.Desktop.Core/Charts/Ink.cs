namespace Quantra.Desktop.Charts;

/// <summary>What a shape shows; whoever draws it has the colours.</summary>
public enum Ink
{
    /// <summary>Closes that are known.</summary>
    Past,

    /// <summary>The middle of a forecast.</summary>
    Median,

    /// <summary>The range of a forecast.</summary>
    Band,

    /// <summary>What raises a number.</summary>
    Up,

    /// <summary>What lowers it.</summary>
    Down,

    /// <summary>Axes and their numbers.</summary>
    Quiet,

    /// <summary>Lines to read values by.</summary>
    Grid,

    /// <summary>Names and values.</summary>
    Text,
}
