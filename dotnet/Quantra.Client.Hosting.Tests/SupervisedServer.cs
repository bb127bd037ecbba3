namespace Quantra.Client.Hosting.Tests;

/// <summary>A real supervised server with a ledger, and its client.</summary>
public sealed class SupervisedServer(HostingFixture fixture) : IAsyncLifetime
{
    internal LogRecorder Log { get; } = new();

    public QuantraServer Server { get; private set; } = null!;

    public QuantraClient Client { get; private set; } = null!;

    public async ValueTask InitializeAsync()
    {
        Server = new QuantraServer(fixture.Options(options =>
        {
            options.MaxRestarts = 10;
            options.Ledger = fixture.PathOf("ledger.db");
        }), Log);
        Client = Server.OpenClient();
        await Server.StartAsync();
    }

    public async ValueTask DisposeAsync()
    {
        await Client.DisposeAsync();
        await Server.DisposeAsync();
    }
}
