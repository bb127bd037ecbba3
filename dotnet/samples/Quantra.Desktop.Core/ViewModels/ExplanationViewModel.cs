using System.Globalization;
using Quantra.Client;
using Quantra.Desktop.Charts;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>The explanation of one number of the forecast: the selected number, and the contributions of the inputs.</summary>
public sealed class ExplanationViewModel : ObservableObject
{
    private ImportanceChart? _chart;
    private string _sum = "";
    private IReadOnlyList<int> _horizons = [];
    private IReadOnlyList<double> _quantiles = [];
    private int _horizon;
    private double _quantile;

    /// <summary>Raised when another number is selected.</summary>
    public event EventHandler? TargetChanged;

    /// <summary>The chart; null = no explanation.</summary>
    public ImportanceChart? Chart
    {
        get => _chart;
        private set => Set(ref _chart, value);
    }

    /// <summary>The baseline's number, the forecast's number and their unit.</summary>
    public string Sum
    {
        get => _sum;
        private set => Set(ref _sum, value);
    }

    /// <summary>Horizons of the model, in trading days.</summary>
    public IReadOnlyList<int> Horizons
    {
        get => _horizons;
        private set => Set(ref _horizons, value);
    }

    /// <summary>Quantiles of the model.</summary>
    public IReadOnlyList<double> Quantiles
    {
        get => _quantiles;
        private set => Set(ref _quantiles, value);
    }

    /// <summary>The selected horizon.</summary>
    public int Horizon
    {
        get => _horizon;
        set
        {
            if (Set(ref _horizon, value))
                TargetChanged?.Invoke(this, EventArgs.Empty);
        }
    }

    /// <summary>The selected quantile.</summary>
    public double Quantile
    {
        get => _quantile;
        set
        {
            if (Set(ref _quantile, value))
                TargetChanged?.Invoke(this, EventArgs.Empty);
        }
    }

    /// <summary>Offers a model's horizons and quantiles. Keeps the selection if the model has it.</summary>
    /// <remarks>Does not raise <see cref="TargetChanged"/>, because a new model is explained anyway.</remarks>
    public void Offer(ModelInfo model)
    {
        ArgumentNullException.ThrowIfNull(model);
        (Horizons, Quantiles) = (model.Horizons, model.Quantiles);
        Set(ref _horizon, KeepOrDefault(Horizons, _horizon), nameof(Horizon));
        Set(ref _quantile, KeepOrDefault(Quantiles, _quantile), nameof(Quantile));
    }

    public void Show(Attribution attribution, string symbol)
    {
        ArgumentNullException.ThrowIfNull(attribution);
        Chart = ImportanceChart.Of(attribution, symbol);
        var index = attribution.Symbols.ToList().IndexOf(symbol);
        var (baseline, forecast) = (attribution.BaselinePrediction.Span[index], attribution.Prediction.Span[index]);
        Sum = string.Create(
            CultureInfo.InvariantCulture,
            $"{attribution.Baseline} {baseline:+0.00000;-0.00000} → forecast {forecast:+0.00000;-0.00000} ({attribution.Unit})");
    }

    public void Clear() => (Chart, Sum) = (null, "");

    private static T KeepOrDefault<T>(IReadOnlyList<T> values, T chosen) =>
        values.Contains(chosen) ? chosen : values[(values.Count - 1) / 2];
}
