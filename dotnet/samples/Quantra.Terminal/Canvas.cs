using Spectre.Console;

namespace Quantra.Terminal;

/// <summary>A drawing of braille dots. Each character has 2 by 4 dots and one colour.</summary>
internal sealed class Canvas(int columns, int rows)
{
    private const int Blank = 0x2800;
    private static readonly int[,] Dots = { { 0x01, 0x02, 0x04, 0x40 }, { 0x08, 0x10, 0x20, 0x80 } };

    private readonly int[,] _cells = new int[rows, columns];
    private readonly Color[,] _colors = new Color[rows, columns];

    public int Width => columns * 2;

    public int Height => rows * 4;

    /// <summary>Sets a dot, with y from the top. Ignores dots outside the canvas.</summary>
    public void Dot(int x, int y, Color color)
    {
        if (x < 0 || x >= Width || y < 0 || y >= Height)
            return;
        _cells[y / 4, x / 2] |= Dots[x % 2, y % 4];
        _colors[y / 4, x / 2] = color;
    }

    /// <summary>Draws a line.</summary>
    public void Line((double X, double Y) from, (double X, double Y) to, Color color)
    {
        var steps = (int)Math.Max(Math.Abs(to.X - from.X), Math.Abs(to.Y - from.Y)) + 1;
        for (var step = 0; step <= steps; step++)
        {
            var part = (double)step / steps;
            Dot((int)Math.Round(from.X + ((to.X - from.X) * part)), (int)Math.Round(from.Y + ((to.Y - from.Y) * part)), color);
        }
    }

    /// <summary>Returns a row as markup.</summary>
    public string Row(int row)
    {
        var line = new System.Text.StringBuilder();
        for (var column = 0; column < columns; column++)
        {
            var cell = _cells[row, column];
            line.Append(cell == 0 ? " " : $"[{_colors[row, column].ToMarkup()}]{(char)(Blank + cell)}[/]");
        }

        return line.ToString();
    }
}
