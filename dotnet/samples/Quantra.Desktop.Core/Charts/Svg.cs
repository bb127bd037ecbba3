using System.Globalization;
using System.Security;
using System.Text;

namespace Quantra.Desktop.Charts;

/// <summary>Shapes as an SVG picture: what the window shows, for files, mails and tests.</summary>
public static class Svg
{
    private const string Font = "font-family=\"Segoe UI, system-ui, sans-serif\" font-size=\"12\"";

    /// <summary>The picture.</summary>
    /// <param name="shapes">In the order in which they are drawn.</param>
    /// <param name="size">Of the whole.</param>
    /// <param name="title">What it shows, for those who cannot see it.</param>
    public static string Write(IEnumerable<Shape> shapes, ChartSize size, string title)
    {
        ArgumentNullException.ThrowIfNull(shapes);
        var text = new StringBuilder();
        text.Append(CultureInfo.InvariantCulture, $"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {size.Width} {size.Height}\" ");
        text.Append(CultureInfo.InvariantCulture, $"width=\"{size.Width}\" height=\"{size.Height}\" role=\"img\" {Font}>\n");
        text.Append(CultureInfo.InvariantCulture, $"<title>{SecurityElement.Escape(title)}</title>\n");
        foreach (var shape in shapes)
            text.Append(Element(shape)).Append('\n');
        return text.Append("</svg>\n").ToString();
    }

    private static string Element(Shape shape) => shape switch
    {
        Stroke stroke => string.Create(
            CultureInfo.InvariantCulture,
            $"<polyline points=\"{Points(stroke.Points)}\" fill=\"none\" stroke=\"{Palette.Of(stroke.Ink)}\" stroke-width=\"{stroke.Thickness}\"{(stroke.IsDashed ? " stroke-dasharray=\"4 4\"" : "")}/>"),
        Area area => string.Create(
            CultureInfo.InvariantCulture,
            $"<polygon points=\"{Points(area.Points)}\" fill=\"{Palette.Of(area.Ink)}\" fill-opacity=\"{area.Opacity}\"/>"),
        Caption caption => string.Create(
            CultureInfo.InvariantCulture,
            $"<text x=\"{caption.At.X:0.#}\" y=\"{caption.At.Y:0.#}\" dy=\"0.35em\" fill=\"{Palette.Of(caption.Ink)}\" text-anchor=\"{Name(caption.Anchor)}\">{SecurityElement.Escape(caption.Text)}</text>"),
        _ => throw new ArgumentException($"there is no SVG of {shape.GetType().Name}", nameof(shape)),
    };

    private static string Points(IReadOnlyList<Point> points) =>
        string.Join(' ', points.Select(point => string.Create(CultureInfo.InvariantCulture, $"{point.X:0.#},{point.Y:0.#}")));

    private static string Name(Anchor anchor) => anchor switch
    {
        Anchor.Middle => "middle",
        Anchor.End => "end",
        _ => "start",
    };
}
