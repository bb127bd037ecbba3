namespace Quantra.Desktop.Charts;

/// <summary>Colours of the charts, readable on white.</summary>
public static class Palette
{
    /// <summary>Returns the colour of an ink as #rrggbb.</summary>
    public static string Of(Ink ink) => ink switch
    {
        Ink.Past => "#4a5568",
        Ink.Median => "#1d4ed8",
        Ink.Band => "#7aa2f7",
        Ink.Up => "#15803d",
        Ink.Down => "#b91c1c",
        Ink.Quiet => "#6b7280",
        Ink.Grid => "#e5e7eb",
        _ => "#111827",
    };
}
