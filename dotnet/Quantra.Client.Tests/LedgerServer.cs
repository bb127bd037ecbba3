namespace Quantra.Client.Tests;

/// <summary>A real server with a ledger for one test class, which may end it and start it again on the same port.</summary>
/// <remarks>The ledger has forecasts of mine@1 and har@1 with outcomes, lamps of mine@1 and one event.</remarks>
public sealed class LedgerServer(PredictorFixture fixture) : IAsyncLifetime
{
    private const string SetupScript = """
        import sys
        from dataclasses import replace

        sys.path.insert(0, sys.argv[2])
        from ledger_records import forecast_record
        from market import bokeh_panel
        from predictor.due_forecasts import score_due_forecasts
        from predictor.evidence import Lamp
        from predictor.ledger import EvidenceRecord, ForecastRole, Ledger, LedgerEvent

        panel = bokeh_panel("AAPL", "IBM", "MSFT").last(40)
        baseline = replace(forecast_record(panel, 12), model="har", role=ForecastRole.BASELINE, forecast_id="baseline")
        with Ledger.open(sys.argv[1], create=True) as ledger:
            ledger.append([forecast_record(panel, 10), baseline, forecast_record(panel, 28)])
            ledger.add_bars(panel.until(panel.sessions.tolist()[30]))
            score_due_forecasts(ledger)
            state = {"days": 1, "share": 1.0, "promised": 0.8}
            ledger.append([
                EvidenceRecord(
                    model="mine", version=1, monitor="coverage too few", horizon=1, session=ledger.last_session,
                    lamp=Lamp.AMBER, state=state),
                LedgerEvent(kind="evening", model="mine", detail={"forecasts": 3}),
            ])
        """;

    private const string EventScript = """
        import sys
        from predictor.ledger import Ledger, LedgerEvent

        with Ledger.open(sys.argv[1]) as ledger:
            ledger.append([LedgerEvent(kind="alarm", model="mine", version=1, session=20130301, reason=sys.argv[2])])
        """;

    private readonly string _folder = Directory.CreateTempSubdirectory("quantra-ledger-").FullName;
    private PythonServer? _server;
    private int _port;

    public Uri Address => new($"http://127.0.0.1:{_port}");

    private string Ledger => Path.Combine(_folder, "ledger.db");

    public async ValueTask InitializeAsync()
    {
        await PythonServer.RunAsync("-c", SetupScript, Ledger, Path.Combine(PredictorFixture.Repository(), "tests"));
        await StartAsync();
    }

    /// <summary>Records an alarm of mine@1 from another process.</summary>
    public async Task AddEventAsync(string reason) => await PythonServer.RunAsync("-c", EventScript, Ledger, reason);

    /// <summary>Kills the server, as if its machine had failed.</summary>
    public async Task KillAsync() => await _server!.DisposeAsync();

    /// <summary>Lets the server drain, as after the exit of its parent.</summary>
    public async Task DrainAsync() => await _server!.DrainAsync();

    /// <summary>Starts the server on its previous port.</summary>
    public async Task StartAsync()
    {
        _server = await PythonServer.StartAsync(fixture.OneModel, "--listen", $"127.0.0.1:{_port}", "--ledger", Ledger, "--parent-watch");
        _port = _server.Port;
    }

    public async ValueTask DisposeAsync()
    {
        if (_server is not null)
            await _server.DisposeAsync();
        Directory.Delete(_folder, recursive: true);
    }
}
