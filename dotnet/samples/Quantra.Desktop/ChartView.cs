using System.Globalization;
using System.Windows;
using System.Windows.Media;
using Quantra.Desktop.Charts;

namespace Quantra.Desktop;

/// <summary>Draws a chart that fills the available space.</summary>
public sealed class ChartView : FrameworkElement
{
    /// <summary>Identifies <see cref="Chart"/>.</summary>
    public static readonly DependencyProperty ChartProperty = DependencyProperty.Register(
        nameof(Chart),
        typeof(IChart),
        typeof(ChartView),
        new FrameworkPropertyMetadata(null, FrameworkPropertyMetadataOptions.AffectsRender));

    private const double FontSize = 12;
    private static readonly Typeface Font = new("Segoe UI");

    /// <summary>The chart to draw; null = none.</summary>
    public IChart? Chart
    {
        get => (IChart?)GetValue(ChartProperty);
        set => SetValue(ChartProperty, value);
    }

    /// <inheritdoc/>
    protected override void OnRender(DrawingContext drawingContext)
    {
        ArgumentNullException.ThrowIfNull(drawingContext);
        if (Chart is null || ActualWidth <= 0 || ActualHeight <= 0)
            return;
        foreach (var shape in Chart.Draw(new ChartSize(ActualWidth, ActualHeight)))
            Draw(drawingContext, shape);
    }

    private void Draw(DrawingContext context, Shape shape)
    {
        switch (shape)
        {
            case Stroke stroke:
                context.DrawGeometry(null, Pen(stroke), Geometry(stroke.Points, isFilled: false));
                break;
            case Area area:
                context.DrawGeometry(Brush(area.Ink, area.Opacity), null, Geometry(area.Points, isFilled: true));
                break;
            case Caption caption:
                DrawText(context, caption);
                break;
            default:
                throw new ArgumentException($"{shape.GetType().Name} cannot be drawn", nameof(shape));
        }
    }

    private void DrawText(DrawingContext context, Caption caption)
    {
        var pixels = VisualTreeHelper.GetDpi(this).PixelsPerDip;
        var text = new FormattedText(
            caption.Text,
            CultureInfo.InvariantCulture,
            FlowDirection.LeftToRight,
            Font,
            FontSize,
            Brush(caption.Ink, 1),
            pixels);
        var left = caption.Anchor switch
        {
            Anchor.Middle => text.Width / 2,
            Anchor.End => text.Width,
            _ => 0,
        };
        context.DrawText(text, new System.Windows.Point(caption.At.X - left, caption.At.Y - (text.Height / 2)));
    }

    private static Pen Pen(Stroke stroke) => new(Brush(stroke.Ink, 1), stroke.Thickness)
    {
        DashStyle = stroke.IsDashed ? DashStyles.Dash : DashStyles.Solid,
        LineJoin = PenLineJoin.Round,
    };

    private static StreamGeometry Geometry(IReadOnlyList<Charts.Point> points, bool isFilled)
    {
        var geometry = new StreamGeometry();
        using (var open = geometry.Open())
        {
            open.BeginFigure(In(points[0]), isFilled, isClosed: isFilled);
            open.PolyLineTo([.. points.Skip(1).Select(In)], isStroked: !isFilled, isSmoothJoin: true);
        }

        geometry.Freeze();
        return geometry;
    }

    private static System.Windows.Point In(Charts.Point point) => new(point.X, point.Y);

    private static SolidColorBrush Brush(Ink ink, double opacity)
    {
        var brush = new SolidColorBrush((Color)ColorConverter.ConvertFromString(Palette.Of(ink))) { Opacity = opacity };
        brush.Freeze();
        return brush;
    }
}
