namespace Quantra.Client.Hosting.Tests;

/// <summary>A real server that runs, and a client of it.</summary>
public sealed class SupervisedServer(Place place) : IAsyncLifetime
{
    internal SeenLog Log { get; } = new();

    public QuantraServer Server { get; private set; } = null!;

    public QuantraClient Client { get; private set; } = null!;

    public async ValueTask InitializeAsync()
    {
        Server = new QuantraServer(place.Options(options => options.MaxRestarts = 10), Log);
        Client = Server.OpenClient();
        await Server.StartAsync();
    }

    public async ValueTask DisposeAsync()
    {
        await Client.DisposeAsync();
        await Server.DisposeAsync();
    }
}
