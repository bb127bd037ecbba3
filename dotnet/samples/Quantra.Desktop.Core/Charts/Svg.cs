using System.Globalization;
using System.Security;
using System.Text;

namespace Quantra.Desktop.Charts;

/// <summary>Writes shapes as an SVG image, for files, mails and tests.</summary>
public static class Svg
{
    private const string Font = "font-family=\"Segoe UI, system-ui, sans-serif\" font-size=\"12\"";

    /// <summary>Writes an image.</summary>
    /// <param name="shapes">The shapes in drawing order.</param>
    /// <param name="size">Size of the image.</param>
    /// <param name="title">Description for screen readers.</param>
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
        _ => throw new ArgumentException($"{shape.GetType().Name} has no SVG form", nameof(shape)),
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
