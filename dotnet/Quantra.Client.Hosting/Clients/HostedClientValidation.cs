using Microsoft.Extensions.Options;

namespace Quantra.Client.Hosting.Clients;

/// <summary>Validates client options by creating a client, which sends nothing.</summary>
internal sealed class HostedClientValidation(IServiceProvider services) : IValidateOptions<HostedClientOptions>
{
    /// <inheritdoc/>
    public ValidateOptionsResult Validate(string? name, HostedClientOptions options)
    {
        var client = HostedClientOptions.Describe(name);
        if ((options.Address is null) == (options.Server is null))
        {
            return ValidateOptionsResult.Fail(
                $"{client}: set either Address, for example http://127.0.0.1:50051, or Server, the name of a server in this host");
        }

        try
        {
            _ = HostedClientFactory.Open(services, options).DisposeAsync().AsTask();
            _ = HostedClientFactory.OpenAdminOrNull(services, options)?.DisposeAsync().AsTask();
            return ValidateOptionsResult.Success;
        }
        catch (Exception error) when (error is ArgumentException or IOException or InvalidOperationException)
        {
            return ValidateOptionsResult.Fail($"{client}: {error.Message}");
        }
    }
}
