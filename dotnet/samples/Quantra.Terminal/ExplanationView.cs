using System.Globalization;
using Quantra.Client;
using Spectre.Console;
using Spectre.Console.Rendering;

namespace Quantra.Terminal;

/// <summary>The largest contributions to one number of a forecast, as bars to the left and right of zero.</summary>
internal sealed class ExplanationView(Attribution attribution)
{
    private const int Shown = 10;

    /// <summary>Renders the view to the width of the terminal.</summary>
    public IRenderable Render(int width)
    {
        var inner = Math.Clamp(width - 4, 40, 110);
        var rows = attribution.Table(attribution.Symbols[0]);
        var names = rows.Take(Shown).Max(row => row.Name.Length);
        var half = Math.Max((inner - names - 14) / 2, 5);
        var largest = Math.Max(Math.Abs(rows[0].Value), double.Epsilon);
        var lines = rows.Take(Shown).Select(row => new Markup(Line(row, names, half, largest)));
        return new Panel(new Rows([.. lines, new Text(""), Sum(rows), Skill()]))
        {
            Header = new PanelHeader(Heading()),
            Border = BoxBorder.Rounded,
            Width = inner + 4,
            BorderStyle = new Style(Palette.Quiet),
        };
    }

    private static string Line(Contribution row, int names, int half, double largest)
    {
        var length = Math.Abs(row.Value) / largest * half;
        var (left, right) = row.Value < 0 ? (Bar(length), "") : ("", Bar(length));
        var color = (row.Value < 0 ? Palette.Down : Palette.Up).ToMarkup();
        return $"{row.Name.PadRight(names).EscapeMarkup()} [{color}]{left.PadLeft(half)}[/][{Palette.Quiet.ToMarkup()}]│[/]"
            + $"[{color}]{right.PadRight(half)}[/] [{color}]{Number(row.Value)}[/]";
    }

    private static string Bar(double length) => new('━', Math.Max((int)Math.Round(length), length > 0 ? 1 : 0));

    private static string Number(double value) => value.ToString("+0.00000;-0.00000", CultureInfo.InvariantCulture);

    private string Heading() => string.Create(
        CultureInfo.InvariantCulture,
        $" why q{attribution.Quantile:0.###} in {attribution.Horizon} days ");

    private Text Skill() => new(Client.Skill.LineOf(attribution.Skill), new Style(Palette.Quiet));

    private Markup Sum(IReadOnlyList<Contribution> rows)
    {
        var rest = rows.Skip(Shown).Sum(row => row.Value);
        return new Markup(
            $"[{Palette.Quiet.ToMarkup()}]{rows.Count - Math.Min(Shown, rows.Count)} other inputs {Number(rest)}\n"
            + $"baseline {attribution.Baseline.EscapeMarkup()} {Number(attribution.BaselinePrediction.Span[0])} → forecast "
            + $"{Number(attribution.Prediction.Span[0])} ({attribution.Unit.EscapeMarkup()})[/]");
    }
}
