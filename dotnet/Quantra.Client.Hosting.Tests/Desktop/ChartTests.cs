using System.Globalization;
using System.Xml.Linq;
using Quantra.Client.Testing;
using Quantra.Desktop.Charts;

namespace Quantra.Client.Hosting.Tests.Desktop;

/// <summary>Charts of the desktop sample, as images and shapes.</summary>
public sealed class ChartTests
{
    private static readonly ChartSize Size = new(800, 400);
    private static readonly XNamespace Names = "http://www.w3.org/2000/svg";

    private static BarSeries Bars => new()
    {
        Symbol = "AAPL",
        Sessions = (DateOnly[])[.. Enumerable.Range(0, 5).Select(day => new DateOnly(2024, 6, 24).AddDays(day))],
        Open = Prices,
        High = Prices,
        Low = Prices,
        Close = Prices,
        Volume = Prices,
    };

    private static double[] Prices => [100, 110, double.NaN, 90, 100];

    private static Forecast Forecast => new ForecastBuilder
    {
        Symbols = ["AAPL"],
        Horizons = [1, 5],
        Quantiles = [0.1, 0.5, 0.9],
        Value = (_, days, level) => Math.Log(1 + (0.02 * days * (level - 0.4))),
    }.Build();

    [Fact]
    public void The_fan_starts_at_the_last_close_and_ends_at_the_last_horizon()
    {
        var shapes = FanChart.Of(Bars, Forecast)!.Draw(Size);
        var median = Assert.Single(shapes.OfType<Stroke>(), stroke => stroke.Ink == Ink.Median);
        var past = Assert.Single(shapes.OfType<Stroke>(), stroke => stroke.Ink == Ink.Past);
        Assert.Equal(4, past.Points.Count);
        Assert.Equal(past.Points[^1], median.Points[0]);
        Assert.Equal(3, median.Points.Count);
        var (day, horizon) = (median.Points[1].X - median.Points[0].X, median.Points[2].X - median.Points[0].X);
        Assert.Equal(5 * day, horizon, 6);
        Assert.Equal(day, past.Points[^1].X - past.Points[^2].X, 6);
        Assert.Equal(2 * day, past.Points[^2].X - past.Points[^3].X, 6);
    }

    [Fact]
    public void Higher_prices_are_higher_up_and_the_band_lies_between_its_quantiles()
    {
        var shapes = FanChart.Of(Bars, Forecast)!.Draw(Size);
        var past = shapes.OfType<Stroke>().Single(stroke => stroke.Ink == Ink.Past);
        Assert.True(past.Points[1].Y < past.Points[0].Y && past.Points[0].Y < past.Points[2].Y);
        var lines = shapes.OfType<Stroke>().Where(stroke => stroke.Ink is Ink.Band).ToArray();
        var band = Assert.Single(shapes.OfType<Area>());
        Assert.Equal(lines[0].Points.Concat(lines[2].Points.Reverse()), band.Points);
        Assert.True(lines[0].Points[^1].Y > lines[1].Points[^1].Y && lines[1].Points[^1].Y > lines[2].Points[^1].Y);
    }

    [Fact]
    public void The_labels_show_price_simple_return_and_quantile()
    {
        var captions = FanChart.Of(Bars, Forecast)!.Draw(Size).OfType<Caption>().Select(caption => caption.Text).ToArray();
        Assert.Contains("105.00 (+5.0 %) q90", captions);
        Assert.Contains("101.00 (+1.0 %) q50", captions);
        Assert.Contains("97.00 (-3.0 %) q10", captions);
        Assert.Contains("2024-06-24", captions);
        Assert.Contains("+5", captions);
    }

    [Fact]
    public void Without_prices_the_fan_shows_per_cent_from_zero()
    {
        var lagged = Forecast with { Prices = null, Lag = 1 };
        var shapes = FanChart.Of(Bars, lagged)!.Draw(Size);
        Assert.DoesNotContain(shapes.OfType<Stroke>(), stroke => stroke.Ink == Ink.Past);
        Assert.Contains("+5.0 % q90", shapes.OfType<Caption>().Select(caption => caption.Text));
    }

    [Fact]
    public void Values_of_other_targets_are_drawn_unchanged()
    {
        var levels = Forecast with { Prices = null, Returns = null };
        var captions = FanChart.Of(Bars, levels)!.Draw(Size).OfType<Caption>().Select(caption => caption.Text);
        Assert.Contains(string.Create(CultureInfo.InvariantCulture, $"{levels.Value("AAPL", 5, 0.9):F4} q90"), captions);
    }

    [Fact]
    public void A_symbol_without_a_forecast_has_no_fan()
    {
        var refusal = new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.TooFewBars, "few");
        Assert.Null(FanChart.Of(Bars, Forecast with { Refusals = new Dictionary<string, QuantraError> { ["AAPL"] = refusal } }));
    }

    [Theory]
    [InlineData(0.0)]
    [InlineData(1e-9)]
    [InlineData(1e9)]
    public void The_axis_has_a_few_round_numbers_at_any_price_level(double level)
    {
        var flat = Bars with { Close = (double[])[level, level, level, level, level] };
        var fan = FanChart.Of(flat, Forecast with { Prices = Forecast.Prices!.Value.ToArray().Select(_ => level).ToArray() })!;
        var ticks = fan.Draw(Size).OfType<Stroke>().Count(stroke => stroke.Ink == Ink.Grid);
        Assert.InRange(ticks, 1, 8);
    }

    [Fact]
    public void Contributions_go_right_if_they_raise_and_left_if_they_lower_the_number()
    {
        var bars = ImportanceChart.Of(Attribution, "AAPL").Draw(Size).OfType<Area>().ToArray();
        Assert.Equal([Ink.Down, Ink.Up, Ink.Up], bars.Select(bar => bar.Ink));
        Assert.True(bars[0].Points[1].X < bars[0].Points[0].X && bars[1].Points[1].X > bars[1].Points[0].X);
        Assert.Equal(2, Width(bars[0]) / Width(bars[1]), 6);

        static double Width(Area bar) => Math.Abs(bar.Points[1].X - bar.Points[0].X);
    }

    [Fact]
    public void The_remaining_contributions_are_summed()
    {
        var many = Made([.. Enumerable.Range(0, 20).Select(row => ($"feature_{row}", 0.001 * (row - 5)))]);
        var captions = ImportanceChart.Of(many, many.Symbols[0]).Draw(Size).OfType<Caption>().Select(caption => caption.Text).ToArray();
        var rest = many.Table(many.Symbols[0]).Skip(12).Sum(row => row.Value);
        Assert.Equal("8 others", captions[24]);
        Assert.Equal(rest.ToString("+0.00000;-0.00000;0", CultureInfo.InvariantCulture), captions[25]);
    }

    [Fact]
    public void Outcomes_are_green_inside_the_band_and_red_outside()
    {
        var shapes = OutcomeChart.Of([Past(1, 0.0, true), Past(2, 0.05, false), Past(3, null, null)], 5)!.Draw(Size);
        var dots = shapes.OfType<Area>().Where(area => area.Ink is Ink.Up or Ink.Down).ToArray();
        Assert.Equal([Ink.Up, Ink.Down], dots.Select(dot => dot.Ink));
        Assert.True(dots[1].Points[0].Y < dots[0].Points[0].Y && dots[1].Points[0].X > dots[0].Points[0].X);
        var band = Assert.Single(shapes.OfType<Area>(), area => area.Ink == Ink.Band);
        Assert.Equal((6, true), (band.Points.Count, dots[1].Points[2].Y < band.Points.Min(point => point.Y)));
        Assert.Equal(["2013-03-06", "2013-03-08"], shapes.OfType<Caption>().TakeLast(2).Select(caption => caption.Text));
        Assert.Contains("+4.0 %", shapes.OfType<Caption>().Select(caption => caption.Text));
    }

    [Fact]
    public void A_chart_of_outcomes_needs_two_forecasts_of_the_horizon()
    {
        Assert.Null(OutcomeChart.Of([Past(1, 0.0, true)], 5));
        Assert.Null(OutcomeChart.Of([Past(1, 0.0, true), Past(2, 0.0, true)], 20));
    }

    [Fact]
    public void The_images_are_SVG_with_a_title_and_all_shapes()
    {
        var shapes = FanChart.Of(Bars, Forecast)!.Draw(Size);
        var picture = XElement.Parse(Svg.Write(shapes, Size, "AAPL & <others>"));
        Assert.Equal(("svg", "0 0 800 400"), (picture.Name.LocalName, picture.Attribute("viewBox")!.Value));
        Assert.Equal("AAPL & <others>", picture.Element(Names + "title")!.Value);
        Assert.Equal(shapes.Count, picture.Elements().Count() - 1);
        Assert.Equal(shapes.OfType<Caption>().Select(caption => caption.Text), picture.Elements(Names + "text").Select(text => text.Value));
    }

    [Fact]
    public void All_shapes_are_within_the_chart()
    {
        foreach (var chart in new IChart[] { FanChart.Of(Bars, Forecast)!, ImportanceChart.Of(Attribution, "AAPL"), OutcomeChart.Of([Past(1, 0.0, true), Past(2, 0.05, false)], 5)! })
        {
            var points = chart.Draw(Size).SelectMany(shape => shape switch
            {
                Stroke stroke => stroke.Points,
                Area area => area.Points,
                Caption caption => [caption.At],
                _ => [],
            });
            Assert.All(points, point => Assert.True(point is { X: >= 0 and <= 800, Y: >= 0 and <= 400 }, $"{point}"));
        }
    }

    /// <summary>A forecast of a day in March 2013, from -2 % to +2 % in 5 sessions.</summary>
    private static RecordedForecast Past(int day, double? outcome, bool? isInside) => new()
    {
        ForecastId = "id",
        Symbol = "AAPL",
        Role = ForecastRole.Champion,
        Model = "small",
        Version = 1,
        WeightsHash = "",
        AsOf = new(2013, 3, day),
        BaseSession = new(2013, 3, day),
        TargetKind = "log-return",
        Horizons = [5],
        TargetSessions = [new(2013, 3, day + 5)],
        Quantiles = [0.1, 0.5, 0.9],
        Values = new[] { -0.02, 0, 0.02 },
        AnchorPrice = 100,
        IsProspective = true,
        MadeAt = DateTimeOffset.UnixEpoch,
        Outcomes = outcome is null ? [] : [new(5, new(2013, 3, day + 5), 0, OutcomeStatus.Scored, outcome, "", 0.01, isInside, 0.5)],
    };

    private static Attribution Attribution => Made([("up", 0.01), ("down", -0.02), ("little", 0.001)]);

    private static Attribution Made(IReadOnlyList<(string Name, double Value)> rows) => new AttributionBuilder
    {
        Inputs = [.. rows.Select(row => (row.Name, RowKind.Observed))],
        Value = (_, name) => rows.Single(row => row.Name == name).Value,
    }.Build();
}
