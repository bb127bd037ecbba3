using System.Globalization;
using Quantra.Client;
using Quantra.Desktop.Charts;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>What moved one number of the forecast: which number, and the inputs' contributions to it.</summary>
public sealed class ReasonsViewModel : Observable
{
    private ImportanceChart? _chart;
    private string _sum = "";
    private IReadOnlyList<int> _horizons = [];
    private IReadOnlyList<double> _quantiles = [];
    private int _horizon;
    private double _quantile;

    /// <summary>Another number was chosen.</summary>
    public event EventHandler? TargetChanged;

    /// <summary>The chart; null = there is no explanation.</summary>
    public ImportanceChart? Chart
    {
        get => _chart;
        private set => Set(ref _chart, value);
    }

    /// <summary>From the baseline's number to the forecast's, in the unit of every contribution.</summary>
    public string Sum
    {
        get => _sum;
        private set => Set(ref _sum, value);
    }

    /// <summary>Horizons that can be explained, in trading days.</summary>
    public IReadOnlyList<int> Horizons
    {
        get => _horizons;
        private set => Set(ref _horizons, value);
    }

    /// <summary>Quantiles that can be explained.</summary>
    public IReadOnlyList<double> Quantiles
    {
        get => _quantiles;
        private set => Set(ref _quantiles, value);
    }

    /// <summary>The one that is.</summary>
    public int Horizon
    {
        get => _horizon;
        set
        {
            if (Set(ref _horizon, value))
                TargetChanged?.Invoke(this, EventArgs.Empty);
        }
    }

    /// <summary>The one that is.</summary>
    public double Quantile
    {
        get => _quantile;
        set
        {
            if (Set(ref _quantile, value))
                TargetChanged?.Invoke(this, EventArgs.Empty);
        }
    }

    /// <summary>Offers a model's horizons and quantiles; what was chosen stays, where the model has it.</summary>
    /// <remarks>Nobody is told of a change: whoever chose the model asks anyway.</remarks>
    public void Offer(ModelInfo model)
    {
        ArgumentNullException.ThrowIfNull(model);
        (Horizons, Quantiles) = (model.Horizons, model.Quantiles);
        Set(ref _horizon, Kept(Horizons, _horizon), nameof(Horizon));
        Set(ref _quantile, Kept(Quantiles, _quantile), nameof(Quantile));
    }

    /// <summary>Shows an explanation.</summary>
    public void Show(Attribution attribution, string symbol)
    {
        ArgumentNullException.ThrowIfNull(attribution);
        Chart = ImportanceChart.Of(attribution, symbol);
        var place = attribution.Symbols.ToList().IndexOf(symbol);
        var (baseline, forecast) = (attribution.BaselinePrediction.Span[place], attribution.Prediction.Span[place]);
        Sum = string.Create(
            CultureInfo.InvariantCulture,
            $"{attribution.Baseline} {baseline:+0.00000;-0.00000} → forecast {forecast:+0.00000;-0.00000} ({attribution.Unit})");
    }

    /// <summary>Shows nothing.</summary>
    public void Clear() => (Chart, Sum) = (null, "");

    private static T Kept<T>(IReadOnlyList<T> values, T chosen) =>
        values.Contains(chosen) ? chosen : values[(values.Count - 1) / 2];
}
