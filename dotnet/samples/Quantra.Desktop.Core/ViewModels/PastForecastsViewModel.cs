using System.Globalization;
using Quantra.Client;
using Quantra.Desktop.Charts;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>Past forecasts of a symbol with their outcomes, and the lamp of the model, from the server's ledger.</summary>
public sealed class PastForecastsViewModel : ObservableObject
{
    private const int Newest = 250;

    private readonly IForecastLedger _ledger;
    private IReadOnlyList<RecordedForecast> _forecasts = [];
    private OutcomeChart? _chart;
    private string _note = "";
    private string _lamp = "";
    private string _lampColor = Palette.Of(Ink.Quiet);

    /// <param name="ledger">The ledger of the server.</param>
    public PastForecastsViewModel(IForecastLedger ledger) => _ledger = ledger;

    /// <summary>The chart; null = too few past forecasts.</summary>
    public OutcomeChart? Chart
    {
        get => _chart;
        private set => Set(ref _chart, value);
    }

    /// <summary>How many outcomes were inside the band, or why there is no chart.</summary>
    public string Note
    {
        get => _note;
        private set => Set(ref _note, value);
    }

    /// <summary>The lamp of the model in words; "" = none.</summary>
    public string Lamp
    {
        get => _lamp;
        private set => Set(ref _lamp, value);
    }

    /// <summary>Colour of the lamp as #rrggbb.</summary>
    public string LampColor
    {
        get => _lampColor;
        private set => Set(ref _lampColor, value);
    }

    /// <summary>Reads the forecasts of a model's champion and for clients. An error is shown as the note.</summary>
    public async Task LoadAsync(ModelInfo model, string symbol, int horizon, CancellationToken token)
    {
        ArgumentNullException.ThrowIfNull(model);
        try
        {
            var query = new ForecastQuery { Model = model.Name, Symbol = symbol, Roles = [ForecastRole.Champion, ForecastRole.Client], Newest = Newest };
            var forecasts = new List<RecordedForecast>();
            await foreach (var forecast in _ledger.ListForecastsAsync(query, token))
                forecasts.Add(forecast);
            var health = await _ledger.GetHealthAsync(ModelReference.To(model.Name, model.Version), token);
            token.ThrowIfCancellationRequested();
            _forecasts = OnePerDay(forecasts);
            Show(health.Models.Count > 0 ? health.Models[0] : null);
            Select(horizon);
        }
        catch (QuantraException failure)
        {
            Clear();
            Note = failure.Message;
        }
    }

    /// <summary>Shows another horizon.</summary>
    public void Select(int horizon)
    {
        Chart = OutcomeChart.Of(_forecasts, horizon);
        RecordedOutcome[] scored =
        [
            .. _forecasts
                .Where(forecast => forecast.Horizons.Contains(horizon))
                .Select(forecast => forecast.Outcome(horizon))
                .OfType<RecordedOutcome>()
                .Where(outcome => outcome.IsInside is not null),
        ];
        var inside = scored.Count(outcome => outcome.IsInside == true);
        Note = Chart is null
            ? "the ledger has too few forecasts of this symbol"
            : string.Create(CultureInfo.InvariantCulture, $"{inside} of {scored.Length} outcomes {horizon} day{(horizon == 1 ? "" : "s")} ahead were inside the band");
    }

    public void Clear()
    {
        _forecasts = [];
        (Chart, Note, Lamp) = (null, "", "");
    }

    private void Show(ModelHealth? health)
    {
        Lamp = health?.ToString() ?? "no lamp yet";
        LampColor = health?.Lamp switch
        {
            Client.Lamp.Green => Palette.Of(Ink.Up),
            Client.Lamp.Amber => "#b45309",
            Client.Lamp.Red => Palette.Of(Ink.Down),
            _ => Palette.Of(Ink.Quiet),
        };
    }

    /// <summary>Keeps the forecast of each day that counts as evidence, or else the first one for a client. Those without dates are left out.</summary>
    private static RecordedForecast[] OnePerDay(IEnumerable<RecordedForecast> forecasts) =>
    [
        .. forecasts
            .Where(forecast => forecast.AsOf is not null)
            .OrderBy(forecast => forecast.AsOf)
            .ThenBy(forecast => forecast.Role == ForecastRole.Champion ? 0 : 1)
            .DistinctBy(forecast => forecast.AsOf),
    ];
}
