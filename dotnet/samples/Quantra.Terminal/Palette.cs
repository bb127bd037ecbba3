using Spectre.Console;

namespace Quantra.Terminal;

/// <summary>Colours of the drawings.</summary>
internal static class Palette
{
    public static readonly Color Past = new(150, 160, 175);
    public static readonly Color Median = new(86, 156, 255);
    public static readonly Color Band = new(52, 84, 140);
    public static readonly Color Up = new(72, 187, 120);
    public static readonly Color Down = new(229, 97, 97);
    public static readonly Color Quiet = new(110, 118, 130);
}
