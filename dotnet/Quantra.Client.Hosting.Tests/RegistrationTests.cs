using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Options;
using Quantra.Client.Hosting.Clients;
using Quantra.Client.Hosting.Servers;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Registration of clients and servers, from code and from configuration.</summary>
public sealed class RegistrationTests
{
    private static readonly Uri UnusedAddress = new("http://127.0.0.1:1");

    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Fact]
    public async Task A_named_client_is_a_keyed_service_and_an_unnamed_one_an_ordinary_service()
    {
        var services = new ServiceCollection()
            .AddQuantraClient(options => options.Address = UnusedAddress)
            .AddQuantraClient("research", options => options.Address = UnusedAddress)
            .AddSingleton<PredictorConsumer>();
        await using var provider = services.BuildServiceProvider();
        var desk = provider.GetRequiredService<PredictorConsumer>();
        Assert.Same(provider.GetRequiredService<QuantraClient>(), desk.Usual);
        Assert.Same(provider.GetRequiredKeyedService<QuantraClient>("research"), desk.Research);
        Assert.NotSame(desk.Usual, desk.Research);
        Assert.Null(provider.GetKeyedService<IStockPredictor>("sales"));
    }

    [Fact]
    public async Task The_ledger_and_the_lifecycle_of_a_client_are_services_of_its_name()
    {
        var services = new ServiceCollection()
            .AddQuantraClient(options => options.Address = UnusedAddress)
            .AddQuantraClient("research", options => (options.Address, options.AdminAddress) = (UnusedAddress, UnusedAddress));
        await using var provider = services.BuildServiceProvider();
        Assert.Same(provider.GetRequiredService<QuantraClient>(), provider.GetRequiredService<IPathSimulator>());
        Assert.Same(provider.GetRequiredKeyedService<QuantraClient>("research"), provider.GetRequiredKeyedService<IPathSimulator>("research"));
        Assert.Same(provider.GetRequiredService<QuantraClient>().Ledger, provider.GetRequiredService<IForecastLedger>());
        Assert.Same(provider.GetRequiredKeyedService<QuantraClient>("research").Ledger, provider.GetRequiredKeyedService<IForecastLedger>("research"));
        Assert.Same(provider.GetRequiredKeyedService<ModelAdminClient>("research").Lifecycle, provider.GetRequiredKeyedService<IModelLifecycle>("research"));
        var failure = Assert.Throws<InvalidOperationException>(provider.GetRequiredService<IModelLifecycle>);
        Assert.Contains("the unnamed client has no AdminAddress", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task An_invalid_admin_address_fails_the_host_at_startup()
    {
        var section = Section(("Address", "http://127.0.0.1:1"), ("AdminAddress", "localhost:50052"));
        var message = await RefusalAsync(services => services.AddQuantraClient("research", section));
        Assert.Contains("client 'research': 'localhost:50052' begins with neither http://", message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_client_that_is_added_twice_has_both_options()
    {
        var services = new ServiceCollection()
            .AddQuantraClient("research", options => options.Address = UnusedAddress)
            .AddQuantraClient("research", options => options.MaxAttempts = 3);
        await using var provider = services.BuildServiceProvider();
        Assert.Single(provider.GetKeyedServices<IStockPredictor>("research"));
        var options = provider.GetRequiredService<IOptionsMonitor<HostedClientOptions>>().Get("research");
        Assert.Equal((UnusedAddress, 3), (options.Address, options.MaxAttempts));
    }

    [Fact]
    public async Task The_container_disposes_a_client()
    {
        var provider = new ServiceCollection().AddQuantraClient(options => options.Address = UnusedAddress).BuildServiceProvider();
        var client = provider.GetRequiredService<IStockPredictor>();
        await provider.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => client.ListModelsAsync(Token));
    }

    [Fact]
    public async Task A_section_sets_only_its_own_settings()
    {
        var section = Section(
            ("Address", "https://forecasts.example:50051"), ("timeout", "00:00:05"), ("MaxAttempts", "2"), ("Token", "secret"));
        var services = new ServiceCollection().AddQuantraClient("research", section);
        await using var provider = services.BuildServiceProvider();
        var options = provider.GetRequiredService<IOptionsMonitor<HostedClientOptions>>().Get("research");
        Assert.Equal(new Uri("https://forecasts.example:50051"), options.Address);
        Assert.Equal((TimeSpan.FromSeconds(5), 2, new QuantraClientOptions().GraceTime), (options.Timeout, options.MaxAttempts, options.GraceTime));
        Assert.Equal("secret", await options.ToClientOptions(null).Token!(Token));
    }

    [Fact]
    public async Task A_server_section_can_have_lists_and_variables()
    {
        var section = Section(
            ("Models", "models"), ("Arguments:0", "--watch"), ("Arguments:1", "--max-age=3"), ("Environment:OMP_NUM_THREADS", "2"), ("HostWaitsUntilReady", "true"),
            ("Ledger", "ledger.db"), ("AcceptsAdminCalls", "true"));
        await using var provider = new ServiceCollection().AddQuantraServer(section).BuildServiceProvider();
        var options = provider.GetRequiredService<IOptions<QuantraServerOptions>>().Value;
        Assert.Equal(["--watch", "--max-age=3"], options.Arguments);
        Assert.Equal(("2", true), (options.Environment["OMP_NUM_THREADS"], options.HostWaitsUntilReady));
        Assert.Equal(("ledger.db", true), (options.Ledger, options.AcceptsAdminCalls));
    }

    [Fact]
    public void Every_property_can_be_set_by_a_section()
    {
        Assert.Equal(Properties<HostedClientOptions>().Except([nameof(HostedClientOptions.Client)]).Order(), HostedClientSettings.Reader.Names.Order());
        Assert.Equal(Properties<QuantraServerOptions>().Order(), QuantraServerSettings.Reader.Names.Order());

        static IEnumerable<string> Properties<T>() => typeof(T).GetProperties().Select(property => property.Name);
    }

    [Fact]
    public async Task A_host_with_invalid_settings_does_not_start_and_reports_all_of_them()
    {
        var section = Section(
            ("Adress", "http://127.0.0.1:1"), ("Timeout", "30"), ("MaxAttempts", "many"), ("GraceTime", "00:00:00"), ("Server", ""), ("PingInterval:Seconds", "1"));
        var text = await RefusalAsync(services => services.AddQuantraClient("research", section));
        Assert.Contains("Quantra:Adress: unknown setting; the settings are Address, AdminAddress, AuthorityFile, ConnectTimeout, ", text, StringComparison.Ordinal);
        Assert.Contains("Quantra:Timeout: '30' is not a time; write it as 00:00:30", text, StringComparison.Ordinal);
        Assert.Contains("Quantra:MaxAttempts: 'many' is not an integer", text, StringComparison.Ordinal);
        Assert.Contains("Quantra:GraceTime: ", text, StringComparison.Ordinal);
        Assert.Contains("Quantra:PingInterval: it has no value", text, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_missing_section_is_reported()
    {
        var empty = new ConfigurationBuilder().Build().GetSection("Quantra:Research");
        Assert.Contains(
            "the configuration section Quantra:Research is missing or empty", await RefusalAsync(services => services.AddQuantraClient(empty)), StringComparison.Ordinal);
    }

    [Theory]
    [InlineData(null, null, "client 'research': set either Address")]
    [InlineData("http://127.0.0.1:1", "", "client 'research': set either Address")]
    [InlineData("localhost:50051", null, "client 'research': 'localhost:50051' begins with neither http:// nor https://")]
    [InlineData(null, "own", "client 'research': no QuantraServer named 'own' was added")]
    [InlineData(null, "", "client 'research': no unnamed QuantraServer was added")]
    public async Task An_invalid_address_fails_the_host_at_startup(string? address, string? server, string text)
    {
        var message = await RefusalAsync(services => services.AddQuantraClient("research", options =>
        {
            options.Address = address is null ? null : new Uri(address);
            options.Server = server;
        }));
        Assert.Contains(text, message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_missing_authority_file_fails_the_host_at_startup()
    {
        var section = Section(("Address", "https://127.0.0.1:1"), ("AuthorityFile", "/nowhere/ca.pem"));
        Assert.Contains("/nowhere/ca.pem", await RefusalAsync(services => services.AddQuantraClient(section)), StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("", "", "the unnamed server: Models is missing")]
    [InlineData("models", null, "the unnamed server: Arguments contains null")]
    [InlineData("models", "--listen=0.0.0.0:1", "the unnamed server: Arguments contains --listen")]
    [InlineData("models", "--tls-cert", "the unnamed server: Arguments contains --tls-cert")]
    [InlineData("models", "--ledger=ledger.db", "the unnamed server: Arguments contains --ledger")]
    [InlineData("models", "--admin-listen", "the unnamed server: Arguments contains --admin-listen")]
    public async Task Invalid_server_options_fail_the_host_at_startup(string models, string? argument, string text)
    {
        var message = await RefusalAsync(services => services.AddQuantraServer(options =>
        {
            options.Models = models;
            options.Arguments.Add(argument!);
        }));
        Assert.Contains(text, message, StringComparison.Ordinal);
    }

    [Fact]
    public void Invalid_server_options_fail_the_constructor()
    {
        var failure = Assert.Throws<ArgumentException>(() => new QuantraServer(new QuantraServerOptions()));
        Assert.Contains("Models is missing", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_server_has_a_client_of_its_name_and_is_added_only_once()
    {
        var services = new ServiceCollection()
            .AddQuantraServer("own", options => options.Models = "models")
            .AddQuantraServer("own", options => options.Threads = 2)
            .AddQuantraServer(options => options.Models = "others")
            .AddQuantraClient("patient", options => (options.Server, options.Timeout) = ("own", TimeSpan.FromMinutes(5)));
        await using var provider = services.BuildServiceProvider();
        Assert.NotNull(provider.GetRequiredKeyedService<IStockPredictor>("own"));
        Assert.NotNull(provider.GetRequiredKeyedService<IStockPredictor>("patient"));
        Assert.NotSame(provider.GetRequiredService<QuantraServer>(), provider.GetRequiredKeyedService<QuantraServer>("own"));
        Assert.Equal(2, provider.GetServices<IHostedService>().OfType<HostedServer>().Count());
        Assert.Equal(2, provider.GetRequiredService<IOptionsMonitor<QuantraServerOptions>>().Get("own").Threads);
    }

    [Fact]
    public async Task A_server_that_accepts_admin_calls_has_a_lifecycle()
    {
        var services = new ServiceCollection()
            .AddQuantraServer("own", options => (options.Models, options.AcceptsAdminCalls) = ("models", true))
            .AddQuantraServer(options => options.Models = "others");
        await using var provider = services.BuildServiceProvider();
        Assert.Same(
            provider.GetRequiredKeyedService<ModelAdminClient>("own").Lifecycle, provider.GetRequiredKeyedService<IModelLifecycle>("own"));
        var failure = Assert.Throws<InvalidOperationException>(provider.GetRequiredService<IModelLifecycle>);
        Assert.Equal("the server of the unnamed client does not accept admin calls; set AcceptsAdminCalls of its options", failure.Message);
    }

    [Fact]
    public void Null_is_rejected_by_every_method()
    {
        var services = new ServiceCollection();
        Assert.Throws<ArgumentNullException>(() => services.AddQuantraClient(null!, _ => { }));
        Assert.Throws<ArgumentNullException>(() => services.AddQuantraClient((Action<HostedClientOptions>)null!));
        Assert.Throws<ArgumentNullException>(() => services.AddQuantraClient((IConfiguration)null!));
        Assert.Throws<ArgumentNullException>(() => services.AddQuantraServer(null!, _ => { }));
        Assert.Throws<ArgumentNullException>(() => services.AddQuantraServer((Action<QuantraServerOptions>)null!));
        Assert.Throws<ArgumentNullException>(() => services.AddQuantraServer((IConfiguration)null!));
        Assert.Throws<ArgumentNullException>(() => ((IServiceCollection)null!).AddQuantraTrainer());
        Assert.Throws<ArgumentNullException>(() => services.AddHealthChecks().AddQuantra(null!));
        Assert.Throws<ArgumentNullException>(() => new QuantraServer(null!));
        Assert.Throws<ArgumentNullException>(() => new QuantraTrainer(null!));
    }

    [Fact]
    public void Options_out_of_range_are_rejected()
    {
        Assert.Throws<ArgumentOutOfRangeException>(() => new HostedClientOptions { Timeout = TimeSpan.Zero });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraServerOptions { Threads = 0 });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraServerOptions { MaxRestarts = -1 });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraServerOptions { StartTimeout = TimeSpan.Zero });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraServerOptions { GraceTime = TimeSpan.FromDays(2) });
        Assert.Throws<ArgumentOutOfRangeException>(() => new QuantraTrainerOptions { GraceTime = TimeSpan.Zero });
    }

    private static IConfigurationSection Section(params (string Name, string Value)[] settings) => new ConfigurationBuilder()
        .AddInMemoryCollection(settings.Select(one => KeyValuePair.Create($"Quantra:{one.Name}", (string?)one.Value)))
        .Build()
        .GetSection("Quantra");

    /// <summary>Returns the error of a host that does not start.</summary>
    private static async Task<string> RefusalAsync(Action<IServiceCollection> add)
    {
        var builder = Host.CreateEmptyApplicationBuilder(null);
        add(builder.Services);
        using var host = builder.Build();
        var failure = await Assert.ThrowsAsync<OptionsValidationException>(() => host.StartAsync(Token));
        return failure.Message;
    }
}
