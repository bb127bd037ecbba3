namespace Quantra.Desktop.Charts;

/// <summary>Meaning of a shape, from which the renderer derives its colour.</summary>
public enum Ink
{
    /// <summary>Past closes.</summary>
    Past,

    /// <summary>Median of a forecast.</summary>
    Median,

    /// <summary>Range of a forecast.</summary>
    Band,

    /// <summary>A positive contribution.</summary>
    Up,

    /// <summary>A negative contribution.</summary>
    Down,

    /// <summary>Axes and their labels.</summary>
    Quiet,

    /// <summary>Grid lines.</summary>
    Grid,

    /// <summary>Names and values.</summary>
    Text,
}
